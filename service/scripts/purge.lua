-- purge.lua: end dead jobs for good, payload and all.
--
-- Runs     allow-oom: it frees
-- Uses     clock, reference, index, bodies
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
-- ARGV[4+] members of the dead set
--
-- Returns  how many were purged; the others are not dead.
-- Leaves   the references of offloaded payloads in the trash. What is no reference of this queue has no payload to
--          delete.
local queues, delayed, bodies, leases, dead = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local trash, trouble, moved, paused = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local now, queue, inline, purged = clock(ARGV[1]), ARGV[2], ARGV[3], 0
for i = 4, #ARGV do
  local member = ARGV[i]
  if redis.call('ZREM', dead, member) == 1 then
    local backend, of, _, uuid = parse(member)
    redis.call('HDEL', trouble, uuid or redis.sha1hex(member))
    if of == queue then
      redis.call('HDEL', moved, uuid)
      if backend == inline then
        redis.call('HDEL', bodies, uuid)
      else
        redis.call('ZADD', trash, now, member)
      end
    end
    purged = purged + 1
  end
end
tidy(bodies)
reindex(queues, queue, delayed, leases, dead, trash, paused)
return purged
