-- The bodies hash has one field that is no uuid: `largest`, the size in bytes of the largest body since the hash was
-- last empty. It lets claim move many small bodies without asking for the length of each (15% of a move of 200 bytes).
-- A hash without it is one that somebody else began to fill: then claim asks.
local LARGEST = 'largest'

-- tidy(bodies): a hash that holds nothing but `largest` goes.
local function tidy(bodies)
  if redis.call('HLEN', bodies) == 1 and redis.call('HEXISTS', bodies, LARGEST) == 1 then redis.call('DEL', bodies) end
end

-- keep(bodies, uuid, body): one more payload for the hash, which goes on knowing its largest.
local function keep(bodies, uuid, body)
  local largest = tonumber(redis.call('HGET', bodies, LARGEST))
  if not largest and redis.call('EXISTS', bodies) == 0 then largest = -1 end
  redis.call('HSET', bodies, uuid, body)
  if largest and #body > largest then redis.call('HSET', bodies, LARGEST, #body) end
end
