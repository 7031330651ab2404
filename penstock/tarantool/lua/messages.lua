-- Messages: stored, found, waited for. `prefix` and `streams` come from load.lua.

local fiber = require('fiber')
local SELECT_MOST = 4294967295

local function messages() return box.space[prefix .. 'message'] end
local function consumers() return box.space[prefix .. 'consumers'] end
local function kept() return box.space[prefix .. 'penstock'] end
local function deleted() return box.space[prefix .. 'penstock_deleted'] end

local function refuse(message) error('penstock: ' .. message, 0) end

-- A nil from outside is box.NULL, which is true to `or`.
local function given(value, otherwise)
    if value == nil then return otherwise end
    return value
end

local function text(name, value)
    if type(value) ~= 'string' or value == '' then refuse(name .. ' must be a text that is not empty') end
    return value
end

local function number(name, value)
    local is_number = type(value) == 'number' or type(value) == 'cdata'
    if not is_number or value < 0 then refuse(name .. ' must be a number, 0 or more') end
    return value
end

local function at_most(limit)
    if limit == nil then return SELECT_MOST end
    number('limit', limit)
    return limit < SELECT_MOST and tonumber(limit) or SELECT_MOST
end

local function atomically(call, ...)
    if box.is_in_txn() then return call(...) end
    return box.atomic(call, ...)
end

-- The highest sequence ever given. The counter is kept: when everything expired it still knows. The newest
-- message is looked at as well, so that whoever inserts into the space by himself does no harm.
local function last_sequence()
    local counted, newest = kept():get('sequence'), messages().index.primary:max()
    local last = counted ~= nil and counted[2] or 0
    if newest ~= nil and newest[1] > last then last = newest[1] end
    return last, newest
end

-- A message can be seen before the WAL has it, and would then be gone after a crash. Nobody is shown one above
-- this sequence before a write of our own, which stands behind it in the WAL, has been acknowledged.
local confirmed = 0

local function confirm(sequence)
    if sequence <= confirmed or box.is_in_txn() or box.info.ro then return end
    local last = last_sequence()
    kept():replace({'barrier', last})
    if last > confirmed then confirmed = last end
end

local news = fiber.cond()
local function tell(_, new) if new ~= nil then news:broadcast() end end
local before = streams.replaced ~= nil and streams.replaced.tell or nil
if before == nil or not pcall(function() messages():on_replace(tell, before) end) then
    messages():on_replace(tell)
end
streams.tell = tell

local function checked_headers(headers)
    if headers == nil then return setmetatable({}, {__serialize = 'map'}) end
    if type(headers) ~= 'table' then refuse('headers must be a map of texts') end
    for name, value in pairs(headers) do
        if type(name) ~= 'string' or type(value) ~= 'string' then refuse('headers must be a map of texts') end
    end
    return setmetatable(headers, {__serialize = 'map'})
end

-- No fiber runs between taking the sequence and handing the message to the WAL: sequences become visible in
-- their order. Times never go back either, so that the oldest of a subject are also its first.
local function insert(subject, object_name, headers, create_at)
    local last, newest = last_sequence()
    local sequence = last + 1
    if newest ~= nil and newest[5] > create_at then create_at = newest[5] end
    messages():insert({sequence, headers, object_name, subject, create_at})
    kept():replace({'sequence', sequence})
    return sequence
end

local function now() return math.floor(fiber.time()) end

function streams.publish(subject, object_name, headers, create_at)
    text('subject', subject)
    if type(object_name) ~= 'string' then refuse('object_name must be a text') end
    headers = checked_headers(headers)
    local is_inner = box.is_in_txn()
    local sequence = atomically(insert, subject, object_name, headers, given(create_at, now()))
    if not is_inner and sequence > confirmed then confirmed = sequence end
    return sequence
end

-- Several at once, all or none: {{subject, object_name, headers}, …}; their sequences follow each other.
function streams.publish_many(items, create_at)
    for _, item in ipairs(items) do
        text('subject', item[1])
        if type(item[2]) ~= 'string' then refuse('object_name must be a text') end
        item[3] = checked_headers(item[3])
    end
    local sequences = atomically(function()
        local sequences = {}
        for i, item in ipairs(items) do sequences[i] = insert(item[1], item[2], item[3], given(create_at, now())) end
        return sequences
    end)
    if #sequences > 0 then confirm(sequences[#sequences]) end
    return sequences
end

function streams.get(sequence)
    local found = messages():get(number('sequence', sequence))
    if found ~= nil then confirm(found[1]) end
    return found
end

-- Rows in the order of their sequences, as they may be shown.
local function shown(found)
    if #found > 0 then confirm(found[#found][1]) end
    return found
end

-- The index goes on with the next subject, so what is beyond ours is cut off.
local function of_subject(subject, start, limit)
    local index = messages().index.subject_sequence
    local found = index:select({subject, start}, {iterator = 'GE', limit = limit})
    for i = #found, 1, -1 do
        if found[i][4] == subject then break end
        found[i] = nil
    end
    return found
end

function streams.by_subject(subject, start, limit)
    text('subject', subject)
    limit = at_most(limit)
    if limit == 0 then return {} end
    return shown(of_subject(subject, number('start_sequence', given(start, 0)), limit))
end

function streams.newest(subject)
    local index = messages().index.subject_sequence
    local found = index:select({text('subject', subject)}, {iterator = 'REQ', limit = 1})[1]
    if found == nil then return 0 end
    confirm(found[1])
    return found[1]
end

-- The highest sequence ever given, whether its message is still there or not.
function streams.last()
    local last = last_sequence()
    confirm(last)
    return last
end

-- Wait until there is a sequence above `after`; the highest there is then, or when the time is over.
function streams.wait(after, timeout)
    local deadline = fiber.clock() + number('timeout', timeout)
    while true do
        local last = last_sequence()
        local left = deadline - fiber.clock()
        if last > after or left <= 0 then
            confirm(last)
            return last
        end
        news:wait(left)
    end
end
