-- Consumers: how far each durable name has read a subject. The number is that of the last message read.

function streams.move(durable_name, subject, last_sequence)
    text('durable_name', durable_name)
    text('subject', subject)
    consumers():replace({durable_name, subject, number('last_sequence', last_sequence)})
    return true
end

function streams.position(durable_name, subject)
    local found = consumers():get({text('durable_name', durable_name), text('subject', subject)})
    return found ~= nil and found[3] or 0
end

-- Forward only, in one step: no fiber runs between the look and the move.
function streams.advance(durable_name, subject, sequence)
    if number('sequence', sequence) <= streams.position(durable_name, subject) then return false end
    return streams.move(durable_name, subject, sequence)
end

function streams.consumers_of(subject)
    return consumers().index.subject:select({text('subject', subject)})
end

-- All consumers, some at a time, behind {durable_name, subject}.
function streams.consumers(after, limit)
    local options = {iterator = after ~= nil and 'GT' or 'ALL', limit = at_most(limit)}
    return consumers().index.primary:select(after, options)
end

-- Drop a durable name's position in a subject, or in all; how many there were.
function streams.drop_consumer(durable_name, subject)
    local key = {text('durable_name', durable_name)}
    if subject ~= nil then key[2] = text('subject', subject) end
    local found = consumers().index.primary:select(key)
    atomically(function() for _, each in ipairs(found) do consumers():delete({each[1], each[2]}) end end)
    return #found
end
