-- Run in an empty folder: tarantool tarantool.lua COUNT. Prints messages a second as JSON.
local clock, digest, json = require('clock'), require('digest'), require('json')
local count = tonumber(arg[1])

box.cfg{log_level = 0, wal_mode = 'write', memtx_memory = 2 * 1024 * 1024 * 1024, checkpoint_interval = 0}
local events = box.schema.space.create('events', {
    format = {{'offset', 'unsigned'}, {'ts', 'unsigned'}, {'key', 'string'}, {'value', 'string'}},
})
events:create_index('primary', {parts = {'offset'}})

local keys, values = {}, {}
for i = 1, 1000 do
    keys[i], values[i] = digest.urandom(16), digest.urandom(204)
end

local begin = clock.monotonic()
for first = 0, count - 1, 1000 do
    box.begin()
    for i = 1, 1000 do
        events:insert{first + i - 1, clock.time64(), keys[i], values[i]}
    end
    box.commit()
end
local written = clock.monotonic()

local found = 0
for _, tuple in events:pairs() do
    if tuple.value ~= nil then found = found + 1 end
end
assert(found == count)
local read = clock.monotonic()

print(json.encode({write = count / (written - begin), read = count / (read - written)}))
os.exit(0)
