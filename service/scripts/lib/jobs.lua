-- holds(member, ...): whether one of these sets holds it.
local function holds(member, ...)
  for _, set in ipairs({ ... }) do
    if redis.call('ZSCORE', set, member) then return true end
  end
  return false
end

-- owned(leases, member, token): whether the lease that stands is the caller's own.
local function owned(leases, member, token)
  local deadline = redis.call('ZSCORE', leases, member)
  return deadline and tonumber(deadline) == tonumber(token)
end

-- due_of(moved_to, ts): when the owner wants the job: where it was moved to, or the time in its reference. What a hand
-- wrote there and is no time counts for nothing: it could not be a score.
local function due_of(moved_to, ts)
  local due = tonumber(moved_to)
  return due and due >= 0 and due <= 9007199254740991 and due or ts
end

-- owner_due(moved, uuid, ts): the same, asked of the hash.
local function owner_due(moved, uuid, ts)
  return due_of(redis.call('HGET', moved, uuid), ts)
end
