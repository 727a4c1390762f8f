-- cancel.lua: take one job out of the delayed set or out of a dispatcher's hands.
--
-- Runs     allow-oom: it frees
-- Uses     clock, index, bodies, jobs
-- KEYS[1]  queues    ZSET  queue -> next look, ms
-- KEYS[2]  delayed   ZSET  reference -> due, ms
-- KEYS[3]  bodies    HASH  uuid -> payload
-- KEYS[4]  leases    ZSET  reference -> lease deadline, ms
-- KEYS[5]  dead      ZSET  reference -> time of death, ms
-- KEYS[6]  trash     ZSET  reference -> next deletion, ms
-- KEYS[7]  trouble   HASH  uuid -> record, JSON
-- KEYS[8]  moved     HASH  uuid -> due, ms
-- KEYS[9]  paused    STRING
-- KEYS[10] cancelled STRING
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  reference
-- ARGV[4]  uuid
-- ARGV[5]  1: its payload is in the bodies hash, 0: elsewhere
-- ARGV[6]  the marker lives so long, ms
--
-- Returns  `cancelled` (also when a DELETE before said so), `dead`, or `gone` (delivered, purged, or never accepted).
-- Leaves   no trace of the job but its reference in the trash, and a marker: a late schedule of this reference is
--          refused, also when nothing was found (`void`), so that a DELETE settles an unknown outcome. A dispatcher
--          that still holds the job finds its lease gone when it delivers, and drops it.
local queues, delayed, bodies, leases, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local trash, trouble, moved, paused, cancelled = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now, queue, reference, uuid = clock(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]
local inline, marker_ttl = ARGV[5] == '1', ARGV[6]

if holds(reference, dead) then return 'dead' end
if not holds(reference, delayed, leases) then
  if redis.call('GET', cancelled) == 'cancelled' then return 'cancelled' end
  redis.call('SET', cancelled, 'void', 'PX', marker_ttl)
  return 'gone'
end
redis.call('HDEL', trouble, uuid)
redis.call('HDEL', moved, uuid)
if inline then
  redis.call('HDEL', bodies, uuid)
  tidy(bodies)
else
  redis.call('ZADD', trash, now, reference)
end
redis.call('SET', cancelled, 'cancelled', 'PX', marker_ttl)
redis.call('ZREM', delayed, reference)
redis.call('ZREM', leases, reference)
reindex(queues, queue, delayed, leases, dead, trash, paused)
return 'cancelled'
