-- empty_trash.lua: forget payloads whose deletion the backend has confirmed.
--
-- Runs     allow-oom: it frees
-- Uses     index
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[4]  dead     ZSET  reference -> time of death, ms
-- KEYS[5]  trash    ZSET  reference -> next deletion, ms
-- KEYS[6]  paused   STRING
-- ARGV[1]  queue
-- ARGV[2+] members of the trash
--
-- Returns  how many left the trash.
local queues, delayed, leases, dead, trash, paused = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local queue, emptied = ARGV[1], 0
for i = 2, #ARGV do emptied = emptied + redis.call('ZREM', trash, ARGV[i]) end
reindex(queues, queue, delayed, leases, dead, trash, paused)
return emptied
