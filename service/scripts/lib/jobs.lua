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

-- owner_due(moved, uuid, ts): when the owner wants the job: where it was moved to, or the time in its reference.
local function owner_due(moved, uuid, ts)
  return tonumber(redis.call('HGET', moved, uuid) or ts)
end
