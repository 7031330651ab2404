-- What is asked for by a subject or by the beginning of subjects: `asked` is the text, `is_prefix` says which.
-- Subjects are found one step through the index each, however many messages they have.

local COUNT_PAUSE = 4096

local function each_subject(asked, is_prefix)
    if not is_prefix then
        local done = false
        return function()
            if done then return nil end
            done = true
            return asked
        end
    end
    local index, place, iterator = messages().index.subject, asked, 'GE'
    return function()
        local found = index:select({place}, {iterator = iterator, limit = 1})[1]
        if found == nil or found[4]:sub(1, #asked) ~= asked then return nil end
        place, iterator = found[4], 'GT'
        return place
    end
end

local function sink(heap, i)
    while true do
        local least, left = i, 2 * i
        if left <= #heap and heap[left][1] < heap[least][1] then least = left end
        if left < #heap and heap[left + 1][1] < heap[least][1] then least = left + 1 end
        if least == i then return end
        heap[i], heap[least] = heap[least], heap[i]
        i = least
    end
end

-- The next message of each subject lies in a heap; the least of them is taken and its subject moves on.
local function merged(asked, start, limit)
    local heap, found = {}, {}
    for subject in each_subject(asked, true) do
        heap[#heap + 1] = of_subject(subject, start, 1)[1]
    end
    for i = math.floor(#heap / 2), 1, -1 do sink(heap, i) end
    while #found < limit and #heap > 0 do
        local least = heap[1]
        found[#found + 1] = least
        heap[1] = of_subject(least[4], least[1] + 1, 1)[1]
        if heap[1] == nil then
            heap[1] = heap[#heap]
            heap[#heap] = nil
        end
        sink(heap, 1)
    end
    return found
end

function streams.rows(asked, is_prefix, start, limit)
    limit = at_most(limit)
    if limit == 0 then return {} end
    if not is_prefix then return streams.by_subject(asked, start, limit) end
    if asked ~= '' then return shown(merged(asked, start, limit)) end
    return shown(messages().index.primary:select({start}, {iterator = 'GE', limit = limit}))
end

function streams.latest(asked, is_prefix)
    if not is_prefix then return streams.newest(asked) end
    if asked == '' then
        local newest = messages().index.primary:max()
        if newest == nil then return 0 end
        confirm(newest[1])
        return newest[1]
    end
    local latest = 0
    for subject in each_subject(asked, true) do latest = math.max(latest, streams.newest(subject)) end
    return latest
end

-- Others get their turn while it counts.
local function count_of(subject, after)
    local count = 0
    for _, each in messages().index.subject_sequence:pairs({subject, after}, {iterator = 'GT'}) do
        if each[4] ~= subject then break end
        count = count + 1
        if count % COUNT_PAUSE == 0 and not box.is_in_txn() then fiber.yield() end
    end
    return count
end

function streams.count(asked, is_prefix, after)
    if is_prefix and asked == '' and given(after, 0) == 0 then return messages():len() end
    local count = 0
    for subject in each_subject(asked, is_prefix) do count = count + count_of(subject, given(after, 0)) end
    return count
end

-- {subject, messages, first sequence, latest sequence} of each that has messages.
function streams.subjects(asked, is_prefix)
    local found = {}
    for subject in each_subject(asked, is_prefix) do
        local first = of_subject(subject, 0, 1)[1]
        if first ~= nil then
            table.insert(found, {subject, count_of(subject, 0), first[1], streams.newest(subject)})
        end
    end
    return found
end
