-- head(zset): its lowest score, or infinity. What somebody's hand put below zero counts as zero: -inf is no time that a
-- caller could read, and nothing of ours was ever due before 1970.
local function head(zset)
  local score = redis.call('ZRANGE', zset, 0, 0, 'WITHSCORES')[2]
  return score and math.max(0, tonumber(score)) or math.huge
end

-- earliest_head(...): when a queue next needs a look, or infinity: the earliest head of delayed (unless paused), leases
-- and trash.
local function earliest_head(delayed, leases, trash, paused)
  local look = math.min(head(leases), head(trash))
  if redis.call('EXISTS', paused) == 0 then look = math.min(look, head(delayed)) end
  return look
end

-- reindex(...): writes when this queue next needs a look. With dead or paused jobs only, it stays in the index at +inf;
-- with nothing left, it leaves. Returns that time.
local function reindex(queues, queue, delayed, leases, dead, trash, paused)
  local look = earliest_head(delayed, leases, trash, paused)
  if look < math.huge then
    redis.call('ZADD', queues, look, queue)
  elseif redis.call('EXISTS', delayed, dead) > 0 then
    redis.call('ZADD', queues, '+inf', queue)
  else
    redis.call('ZREM', queues, queue)
  end
  return look
end
