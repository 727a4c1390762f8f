-- announce(channel, queue, paused, due): tells dispatchers that sleep of a head that is due then, unless this queue is
-- paused, or has none.
local function announce(channel, queue, paused, due)
  if due < math.huge and redis.call('EXISTS', paused) == 0 then
    redis.call('PUBLISH', channel, string.format('%.0f', due) .. ' ' .. queue)
  end
end
