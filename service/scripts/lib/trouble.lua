-- count_of(value): a whole number that JSON can say; 0 for anything else that a hand wrote into a record.
local function count_of(value)
  local count = tonumber(value)
  return count and count >= 0 and count <= 9007199254740991 and math.floor(count) or 0
end

-- trouble_of(trouble, id): the job's record of what went wrong, or a fresh one. Of what it holds, only these fields are
-- kept: whatever a hand wrote there, the record can be encoded.
local function trouble_of(trouble, id)
  local ok, record = pcall(cjson.decode, redis.call('HGET', trouble, id) or '{}')
  if not ok or type(record) ~= 'table' then record = {} end
  return {
    attempts = count_of(record.attempts),
    expiries = count_of(record.expiries),
    error = type(record.error) == 'string' and record.error or nil,
  }
end

-- bury(...): one member into the dead set, with its reason kept in its record. Its payload stays. The caller then takes
-- it out of the set where it was.
local function bury(dead, trouble, member, id, now, reason, record)
  record.reason = reason
  record.at = now
  local text = cjson.encode(record)
  redis.call('ZADD', dead, now, member)
  redis.call('HSET', trouble, id, text)
end
