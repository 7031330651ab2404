-- Make spaces, indexes and functions, or bring those that are there up to date. Run it as often as you like.
-- `prefix`, `version`, `source`, `names` and `user` are set in front of this text.

local SPACES = {
    {
        name = 'message',
        format = {
            {name = 'sequence', type = 'unsigned'}, {name = 'headers', type = 'map'},
            {name = 'object_name', type = 'string'}, {name = 'subject', type = 'string'},
            {name = 'create_at', type = 'unsigned'},
        },
        indexes = {
            {'primary', true, {'sequence'}}, {'subject', false, {'subject'}},
            {'subject_sequence', true, {'subject', 'sequence'}}, {'create_at', false, {'create_at'}},
        },
    },
    {
        name = 'consumers',
        format = {
            {name = 'durable_name', type = 'string'}, {name = 'subject', type = 'string'},
            {name = 'last_sequence', type = 'unsigned'},
        },
        indexes = {{'primary', true, {'durable_name', 'subject'}}, {'subject', false, {'subject'}}},
    },
    {
        name = 'penstock',
        format = {{name = 'name', type = 'string'}, {name = 'value', type = 'any', is_nullable = true}},
        indexes = {{'primary', true, {'name'}}},
    },
    {
        name = 'penstock_deleted',
        format = {
            {name = 'sequence', type = 'unsigned'}, {name = 'subject', type = 'string'},
            {name = 'object_name', type = 'string'},
        },
        indexes = {{'primary', true, {'sequence'}}},
    },
}

local function refuse(message) error('penstock: ' .. message, 0) end

local function numbers(wanted, parts)
    local found = {}
    for i, part in ipairs(parts) do
        for number, field in ipairs(wanted.format) do
            if field.name == part then found[i] = {number, field.type} end
        end
    end
    return found
end

local function check(space, wanted, index, parts, unique)
    local same = index.type == 'TREE' and index.unique == unique and #index.parts == #parts
    for i, part in ipairs(parts) do
        same = same and index.parts[i].fieldno == part[1] and index.parts[i].type == part[2]
    end
    if not same then
        refuse(string.format('space %s is there, but its index %s is another', space.name, index.name))
    end
end

-- Some versions of MiniToolStream kept no headers as an empty array, which is no map.
local function mend_headers(space)
    local format = space:format()
    if format[2] ~= nil and format[2].type == 'map' then return end
    for _, message in space:pairs() do
        local kind = getmetatable(message[2])
        if type(message[2]) ~= 'table' or kind ~= nil and kind.__serialize == 'seq' then
            space:update(message[1], {{'=', 2, setmetatable({}, {__serialize = 'map'})}})
        end
    end
end

local function make_space(wanted)
    local name = prefix .. wanted.name
    local space = box.space[name] or box.schema.space.create(name, {engine = 'memtx'})
    for _, index in ipairs(wanted.indexes) do
        local parts = numbers(wanted, index[3])
        local found = space.index[index[1]]
        if found ~= nil then
            check(space, wanted, found, parts, index[2])
        else
            space:create_index(index[1], {type = 'TREE', unique = index[2], parts = parts})
        end
    end
    if wanted.name == 'message' then mend_headers(space) end
    space:format(wanted.format)
end

-- A counter that was only in memory is known by what it left behind: messages, and how far consumers have come.
local function restore_counter()
    local kept = box.space[prefix .. 'penstock']
    if kept:get('sequence') ~= nil then return end
    local newest, last = box.space[prefix .. 'message'].index.primary:max(), 0
    if newest ~= nil then last = newest[1] end
    for _, consumer in box.space[prefix .. 'consumers']:pairs() do
        if consumer[3] > last and consumer[3] < 2 ^ 53 then last = consumer[3] end
    end
    kept:insert({'sequence', last})
end

local function body(own)
    if own == 'penstock.load' then return 'function() ' .. source .. ' end' end
    return string.format([[function(...)
    local streams = package.loaded['%spenstock.streams']
    if streams == nil or streams.version ~= %d then
        box.func['%spenstock.load']:call()
        streams = package.loaded['%spenstock.streams']
    end
    return streams.%s(...)
end]], prefix, version, prefix, prefix, names[own])
end

local function grant(grantee, name)
    local is_role = box.space._user:get(grantee).type == 'role'
    local schema = is_role and box.schema.role or box.schema.user
    schema.grant(grantee, 'execute', 'function', name, {if_not_exists = true})
end

-- Who may call it stays as it was.
local function make_function(own)
    local name, wanted = prefix .. own, body(own)
    local found, allowed = box.space._func.index.name:get(name), {}
    if found ~= nil and found.body == wanted then return end
    if found ~= nil then
        for _, right in box.space._priv:pairs() do
            if right.object_type == 'function' and right.object_id == found.id then
                table.insert(allowed, right.grantee)
            end
        end
        box.schema.func.drop(name)
    end
    box.schema.func.create(name, {body = wanted, setuid = true})
    for _, grantee in ipairs(allowed) do grant(grantee, name) end
end

if not box.info.ro then
    local space = box.space[prefix .. 'penstock']
    local there = space ~= nil and space:get('version') or nil
    if there ~= nil and there[2] > version then
        refuse(string.format('a newer version is installed: %d, this is %d', there[2], version))
    end
    for _, wanted in ipairs(SPACES) do make_space(wanted) end
    if user ~= nil and box.space._user.index.name:get(user) == nil then
        refuse(string.format('there is no user %s', user))
    end
    box.atomic(function()
        restore_counter()
        make_function('penstock.load')
        for own in pairs(names) do make_function(own) end
        if user ~= nil then
            local id = box.space._user.index.name:get(user).id
            grant(id, prefix .. 'penstock.load')
            for own in pairs(names) do grant(id, prefix .. own) end
        end
        box.space[prefix .. 'penstock']:replace({'version', version})
    end)
end
box.func[prefix .. 'penstock.load']:call()
return version
