-- The bodies hash has one field that is no uuid: `largest`, the size in bytes of the largest body since the hash was
-- last empty. It lets claim move many small bodies without asking for the length of each (15% of a move of 200 bytes).
-- A hash without it is one that somebody else began to fill: then claim asks.
local LARGEST = 'largest'

-- tidy(bodies): a hash that holds nothing but `largest` goes.
local function tidy(bodies)
  if redis.call('HLEN', bodies) == 1 and redis.call('HEXISTS', bodies, LARGEST) == 1 then redis.call('DEL', bodies) end
end
