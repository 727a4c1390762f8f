-- A queue's ready key is a list of payloads, or a stream whose entries have the fields payload, reference and due. What
-- has another type is somebody else's.

-- usable(ready, kind): whether the ready key is what it is configured to be, or not there yet.
local function usable(ready, kind)
  local found = redis.call('TYPE', ready).ok
  return found == kind or found == 'none'
end

-- group_of(ready, group): what XINFO GROUPS says of it, by name; nil if there is no such group.
local function group_of(ready, group)
  for _, fields in ipairs(redis.call('XINFO', 'GROUPS', ready)) do
    local of = {}
    for i = 1, #fields, 2 do of[fields[i]] = fields[i + 1] end
    if of.name == group then return of end
  end
end

-- length_of(ready, kind, group): entries that nobody is done with. Of a stream, what the group has not read or not
-- acknowledged: to acknowledge an entry does not take it out. Where that cannot be told (no such group yet; no lag, as
-- after entries in the midst were deleted), all entries.
local function length_of(ready, kind, group)
  if kind == 'list' then return redis.call('LLEN', ready) end
  if redis.call('EXISTS', ready) == 0 then return 0 end
  local of = group_of(ready, group)
  return of and of.lag and of.lag + of.pending or redis.call('XLEN', ready)
end

-- put(ready, kind, payloads, members, dues): all of them, in this order. A list holds the payloads alone.
local function put(ready, kind, payloads, members, dues)
  if kind == 'list' then
    redis.call('LPUSH', ready, unpack(payloads))
    return
  end
  for i, payload in ipairs(payloads) do
    local due = string.format('%.0f', dues[i])
    redis.call('XADD', ready, '*', 'payload', payload, 'reference', members[i], 'due', due)
  end
end
