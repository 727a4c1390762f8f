-- clock(given): `given` in ms if a test fills it, otherwise this server's own time. No other machine's clock counts.
local function clock(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end
