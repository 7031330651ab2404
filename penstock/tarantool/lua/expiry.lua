-- Expiry: messages go by age, all alike or by subject. None of it looks at a message that stays, but for the
-- first of each subject.

local BATCH = 1000

-- A body that has a digest is kept by the engine that wrote it; all others are their publishers' own.
local function has_own_body(message) return message[2]['penstock-sha256'] ~= nil end

local function remove(found, is_noted)
    for _, each in ipairs(found) do
        messages():delete(each[1])
        if is_noted and has_own_body(each) then deleted():replace({each[1], each[4], each[3]}) end
    end
end

local function expired(cutoff, limit)
    local found = {}
    for _, each in messages().index.create_at:pairs(nil, {iterator = 'ALL'}) do
        if each[5] > cutoff or #found == limit then break end
        table.insert(found, each)
    end
    return found
end

-- `lives` is {{asked, is_prefix, seconds}, …}; the first that takes a subject says how long its messages live.
local function life_of(subject, lives)
    for _, life in ipairs(lives) do
        if life[1] == subject or life[2] and subject:sub(1, #life[1]) == life[1] then return life[3] end
    end
end

local function expired_by_subject(lives, time, limit)
    local found = {}
    local one = #lives == 1 and lives[1] or {'', true}
    for subject in each_subject(one[1], one[2]) do
        local life = life_of(subject, lives)
        for _, each in ipairs(life ~= nil and of_subject(subject, 0, limit - #found) or {}) do
            if each[5] > time - life then break end
            table.insert(found, each)
        end
        if #found == limit then break end
    end
    return found
end

-- As the seed has it: what went is returned, and whoever asked removes the bodies.
function streams.delete_old(ttl_seconds)
    local cutoff, gone = fiber.time() - number('ttl_seconds', ttl_seconds), {}
    while true do
        local found = expired(cutoff, BATCH)
        if #found == 0 then return #gone, gone end
        atomically(remove, found, false)
        for _, each in ipairs(found) do
            table.insert(gone, {sequence = each[1], subject = each[4], object_name = each[3]})
        end
    end
end

-- Delete at most `limit` messages that are as old as their life or older, and note them until `forget` says that
-- their bodies are gone too. {{sequence, subject, object_name}, …}; empty when nothing is left to delete.
function streams.expire(lives, limit, time)
    limit, time = at_most(given(limit, BATCH)), given(time, fiber.time())
    local is_all = #lives == 1 and lives[1][2] and lives[1][1] == ''
    local found = is_all and expired(time - lives[1][3], limit) or nil
    if found == nil then found = expired_by_subject(lives, time, limit) end
    atomically(remove, found, true)
    local gone = {}
    for i, each in ipairs(found) do gone[i] = {each[1], each[4], each[3]} end
    return gone
end

-- What was deleted and may still have a body.
function streams.leftovers(limit) return deleted():select({}, {limit = at_most(given(limit, BATCH))}) end

function streams.forget(sequences)
    atomically(function() for _, sequence in ipairs(sequences) do deleted():delete(sequence) end end)
    return true
end

-- A setting is any value under a name; nil when there is none.
function streams.setting(name)
    local found = kept():get('setting ' .. text('name', name))
    return found ~= nil and found[2] or nil
end

function streams.set(name, value)
    if value == nil then
        kept():delete('setting ' .. text('name', name))
    else
        kept():replace({'setting ' .. text('name', name), value})
    end
    return true
end

-- The first to ask gives the stream its name; everybody else is told that name.
function streams.bind(name)
    local found = kept():get('stream')
    if found == nil then found = kept():insert({'stream', text('name', name)}) end
    return found[2]
end

function streams.about()
    return setmetatable({
        version = streams.version, wal_mode = box.cfg.wal_mode, read_only = box.info.ro,
        tarantool = box.info.version, messages = messages():len(), consumers = consumers():len(),
        sequence = (last_sequence()),
    }, {__serialize = 'map'})
end
