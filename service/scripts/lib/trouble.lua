-- trouble_of(trouble, id): the job's record of what went wrong, or a fresh one.
local function trouble_of(trouble, id)
  local text = redis.call('HGET', trouble, id)
  if text then
    local ok, record = pcall(cjson.decode, text)
    if ok and type(record) == 'table' then
      record.attempts, record.expiries = tonumber(record.attempts) or 0, tonumber(record.expiries) or 0
      return record
    end
  end
  return { attempts = 0, expiries = 0 }
end

-- bury(...): one member into the dead set, with its reason kept in its record. Its payload stays.
local function bury(dead, trouble, member, id, now, reason, record)
  record.reason = reason
  record.at = now
  redis.call('ZADD', dead, now, member)
  redis.call('HSET', trouble, id, cjson.encode(record))
end
