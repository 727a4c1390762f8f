-- purge.lua: end dead jobs for good, payload and all.
--
-- Runs     allow-oom: it frees
-- Uses     clock, reference, index, bodies, jobs
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  bodies   HASH  uuid -> payload
-- KEYS[4]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[5]  dead     ZSET  reference -> time of death, ms
-- KEYS[6]  trash    ZSET  reference -> next deletion, ms
-- KEYS[7]  trouble  HASH  uuid -> record, JSON
-- KEYS[8]  moved    HASH  uuid -> due, ms
-- KEYS[9]  paused   STRING
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  inline backend's name
-- ARGV[4]  payload bytes freed at most, but always one job
-- ARGV[5+] members of the dead set
--
-- Returns  how many were purged, and how many members were looked at: those behind are for another call. Of what was
--          looked at, the others are not dead.
-- Leaves   the references of offloaded payloads in the trash. What is no reference of this queue has no payload to
--          delete.
local queues, delayed, bodies, leases, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local trash, trouble, moved, paused = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local now, queue, inline, byte_limit = clock(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local purged, looked_at, freed = 0, 0, 0
for i = 5, #ARGV do
  local member = ARGV[i]
  if holds(member, dead) then
    local backend, of, _, uuid = parse(member)
    local size = of == queue and backend == inline and redis.call('HSTRLEN', bodies, uuid) or 0
    if purged > 0 and freed + size > byte_limit then break end
    freed = freed + size
    redis.call('HDEL', trouble, uuid or redis.sha1hex(member))
    if of == queue then
      redis.call('HDEL', moved, uuid)
      if backend == inline then
        redis.call('HDEL', bodies, uuid)
      else
        redis.call('ZADD', trash, now, member)
      end
    end
    redis.call('ZREM', dead, member)
    purged = purged + 1
  end
  looked_at = looked_at + 1
end
tidy(bodies)
reindex(queues, queue, delayed, leases, dead, trash, paused)
return { purged, looked_at }
