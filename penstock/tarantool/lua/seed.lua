-- The names by which MiniToolStream's clients call: its eight functions, and those its later versions added.

function streams.publish_message(subject, object_name, headers)
    return streams.publish(subject, object_name, headers)
end

streams.get_message_by_sequence = streams.get
streams.get_messages_by_subject = streams.by_subject
streams.get_latest_sequence_for_subject = streams.newest
streams.update_consumer_position = streams.move
streams.get_consumer_position = streams.position
streams.get_consumers_by_subject = streams.consumers_of
streams.delete_old_messages = streams.delete_old

function streams.get_message_by_sequence_decoded(sequence)
    local found = streams.get(sequence)
    return found ~= nil and found:tomap({names_only = true}) or nil
end

function streams.get_subject_message_count(subject) return streams.count(text('subject', subject), false, 0) end

-- Messages that are there, not a difference of two numbers.
function streams.get_new_messages_count(subject, durable_name, since)
    if since == nil then since = durable_name ~= nil and streams.position(durable_name, subject) or 0 end
    return streams.count(text('subject', subject), false, since)
end

function streams.check_new_messages(subject, durable_name)
    local position = streams.position(durable_name, subject)
    local count = streams.count(subject, false, position)
    return {
        has_new = count > 0, latest_sequence = streams.newest(subject), consumer_position = position, new_count = count,
    }
end
