for own, name in pairs(names) do
    if not own:find('.', 1, true) then rawset(_G, prefix .. own, streams[name]) end
end
streams.replaced = nil
package.loaded[prefix .. 'penstock.streams'] = streams
