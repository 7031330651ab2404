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

-- Move forward only, and not beyond the newest message: {true, position}, or {false, position, highest}.
local function move_forward(durable_name, subject, sequence)
    local position, highest = streams.position(durable_name, subject), (last_sequence())
    if sequence < position or sequence > highest then return {false, position, highest} end
    if sequence > position then streams.move(durable_name, subject, sequence) end
    return {true, sequence}
end

function streams.ack(durable_name, subject, sequence)
    return atomically(move_forward, durable_name, subject, number('sequence', sequence))
end

function streams.of_subject(subject)
    return consumers().index.subject:select({text('subject', subject)})
end

-- All consumers, some at a time, behind {durable_name, subject}.
function streams.consumers(after, limit)
    local options = {iterator = after ~= nil and 'GT' or 'ALL', limit = at_most(limit)}
    return consumers().index.primary:select(after, options)
end

function streams.count_consumers() return consumers():len() end

function streams.drop_consumer(durable_name, subject)
    return consumers():delete({text('durable_name', durable_name), text('subject', subject)}) ~= nil
end
