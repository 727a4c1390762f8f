-- forgive(strikes, print): a payload that got somewhere has no strikes against it, and no attempts.
local function forgive(strikes, print)
  redis.call('HDEL', strikes, print, 'attempt:' .. print)
end
