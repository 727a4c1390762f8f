-- begun(workers, turns, worker, turn): `ok`, and the turn is noted; or why nothing of it may be done: `lost`, the
-- worker was taken for dead and others have its jobs; `repeated`, it was done before, and its answer was lost, or this
-- is a late copy of the request.
local function begun(workers, turns, worker, turn)
  if not redis.call('ZSCORE', workers, worker) then return 'lost' end
  local last = tonumber(redis.call('HGET', turns, worker))
  if last and last >= tonumber(turn) then return 'repeated' end
  redis.call('HSET', turns, worker, turn)
  return 'ok'
end
