-- The functions of one stream, made once in each instance; persistent functions find them in package.loaded.
-- `prefix`, `version` and `names` are set in front of this text.

local streams = {version = version, replaced = package.loaded[prefix .. 'penstock.streams']}
