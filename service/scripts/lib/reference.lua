-- parse(member): backend, queue, ts and uuid of a reference, or nothing. storage_backends/reference.py has the grammar;
-- a test holds the two to each other.
local function parse(member)
  local backend, queue, ts, uuid = string.match(member, '^([a-z][a-z0-9_]*)::(%w[%w._:-]*)::(%d+)::([0-9a-f-]+)$')
  if not backend or #backend > 32 or string.find(backend, '__', 1, true) then return nil end
  if string.sub(backend, -1) == '_' or #queue > 128 then return nil end
  if string.find(queue, '::', 1, true) or string.sub(queue, -1) == ':' then return nil end
  if #ts > 16 or (#ts > 1 and string.sub(ts, 1, 1) == '0') or tonumber(ts) > 9007199254740991 then return nil end
  if #uuid ~= 36 or string.sub(uuid, 9, 9) ~= '-' then return nil end
  if not string.match(uuid, '^%x+%-%x%x%x%x%-%x%x%x%x%-%x%x%x%x%-%x+$') then return nil end
  return backend, queue, tonumber(ts), uuid
end

-- identity(member): the field under which a member's trouble is kept.
local function identity(member)
  local _, _, _, uuid = parse(member)
  return uuid or redis.sha1hex(member)
end
