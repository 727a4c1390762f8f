-- forgive(strikes, entry): a payload that got somewhere has no strikes against it, and no attempts.
local function forgive(strikes, entry)
  local print = redis.sha1hex(entry)
  redis.call('HDEL', strikes, print, 'attempt:' .. print)
end
