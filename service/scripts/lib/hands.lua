-- What a worker has in hand, and what came back from other hands. Of a list: entries of its in-flight list, each a
-- payload. Of a stream: what is pending under its name in the consumer group, by id; what came back is pending there
-- under names that no worker has, and is taken before what is new. Who gives back uses `ready`, too.
local RETURNED, SUSPECTS = '~returned', '~suspects'

-- hands_of(...): for the functions below. Of a list, the group is empty. `suspects` is needed by those who touch them.
local function hands_of(kind, group, worker, ready, inflight, suspects)
  return { kind = kind, group = group, worker = worker, ready = ready, inflight = inflight, suspects = suspects }
end

-- join(hands): of a stream, what XPENDING says of the group. If there is none (yet, or since somebody deleted the key),
-- it is made, and begins with the oldest entry.
local function join(hands)
  if hands.kind == 'list' then return nil end
  local told = redis.pcall('XPENDING', hands.ready, hands.group)
  if not told.err then return told end
  redis.call('XGROUP', 'CREATE', hands.ready, hands.group, '0', 'MKSTREAM')
  return { 0 }
end

-- tally(hands): how many entries are held by this worker, suspects, returned to a stream, and taken: in anybody's
-- hands, and yet part of the ready queue's length.
local function tally(hands)
  if hands.kind == 'list' then
    local held, suspects = redis.call('LLEN', hands.inflight), redis.call('LLEN', hands.suspects)
    return { held = held, suspects = suspects, returned = 0, taken = 0 }
  end
  local told, of = join(hands), {}
  for _, consumer in ipairs(told[4] or {}) do of[consumer[1]] = tonumber(consumer[2]) end
  local returned = of[RETURNED] or 0
  return { held = of[hands.worker] or 0, suspects = of[SUSPECTS] or 0, returned = returned, taken = told[1] - returned }
end

-- first_of(hands, name): id of the oldest entry of a stream that is pending under a name, or nil.
local function first_of(hands, name)
  local told = redis.pcall('XPENDING', hands.ready, hands.group, '-', '+', 1, name)[1]
  return told and told[1]
end

-- has(hands, id): whether this entry of a stream is in this worker's hands. Without a stream, nothing is.
local function has(hands, id)
  return redis.pcall('XPENDING', hands.ready, hands.group, id, id, 1, hands.worker)[1] ~= nil
end

-- latest(hands): the entry that this worker took last, or nil; to be asked again when that is out of its hands. Of a
-- stream, the last of a thousand.
local function latest(hands)
  if hands.kind == 'list' then return redis.call('LRANGE', hands.inflight, -1, -1)[1] end
  if not hands.page or #hands.page == 0 then
    hands.page = redis.pcall('XPENDING', hands.ready, hands.group, '-', '+', 1000, hands.worker)
  end
  local last = table.remove(hands.page)
  return last and last[1]
end

-- print_of(hands, entry): what strikes are kept under, the SHA-1 of its payload; and that payload's bytes.
local function print_of(hands, entry)
  local payload = entry
  if hands.kind == 'stream' then
    local found = redis.pcall('XRANGE', hands.ready, entry, entry)[1]
    local fields = found and found[2] or {}
    payload = ''
    for i = 1, #fields, 2 do
      if fields[i] == 'payload' then payload = fields[i + 1] end
    end
  end
  return redis.sha1hex(payload), #payload
end

-- let_go(hands, entry): whether it was in them; now it is nobody's. What is acknowledged would stay in the stream, and
-- in its length: it is deleted, too.
local function let_go(hands, entry)
  if hands.kind == 'list' then return redis.call('LREM', hands.inflight, 1, entry) == 1 end
  if not has(hands, entry) then return false end
  redis.call('XACK', hands.ready, hands.group, entry)
  redis.call('XDEL', hands.ready, entry)
  return true
end

-- unread(hands): whether a stream has entries that the group has not seen. Then nobody sleeps there.
local function unread(hands)
  local last = group_of(hands.ready, hands.group)['last-delivered-id']
  return #redis.call('XRANGE', hands.ready, '(' .. last, '+', 'COUNT', 1) > 0
end

-- give_back(hands, entry): to be the next that is taken; whether it was in these hands. Nobody who sleeps is woken by
-- what is pending under another name: where somebody may sleep, it is added to the stream anew, unless somebody gave it
-- more fields than Lua unpacks.
local function give_back(hands, entry)
  if hands.kind == 'list' then
    local mine = redis.call('LREM', hands.inflight, -1, entry) == 1
    if mine then redis.call('RPUSH', hands.ready, entry) end
    return mine
  end
  if not has(hands, entry) then return false end
  local found = redis.call('XRANGE', hands.ready, entry, entry)[1]
  if found and (unread(hands) or #found[2] > 1000) then
    redis.call('XCLAIM', hands.ready, hands.group, RETURNED, 0, entry, 'JUSTID')
  else
    if found then redis.call('XADD', hands.ready, '*', unpack(found[2])) end
    let_go(hands, entry)
  end
  return true
end

-- convert(hands, count, bytes_left): up to so much of what is in this worker's in-flight list although the ready key is
-- a stream, into that: how many, and the bytes left. It was a list when they were taken, and was empty when it went.
local function convert(hands, count, bytes_left)
  local moved = 0
  while moved < count and bytes_left > 0 do
    local payload = redis.call('LPOP', hands.inflight)
    if not payload then break end
    redis.call('XADD', hands.ready, '*', 'payload', payload)
    moved, bytes_left = moved + 1, bytes_left - #payload
  end
  return moved, bytes_left
end

-- set_apart(hands, entry): among the suspects. Of what somebody deleted from a stream nothing is pending after that.
local function set_apart(hands, entry)
  if hands.kind == 'stream' then
    redis.call('XCLAIM', hands.ready, hands.group, SUSPECTS, 0, entry, 'JUSTID')
  elseif redis.call('LREM', hands.inflight, -1, entry) == 1 then
    redis.call('RPUSH', hands.suspects, entry)
  end
end

-- tell(answer, entry): adds id and fields of a stream's entry to the answer; returns its bytes, and its id.
local function tell(answer, entry)
  local bytes = 0
  for _, text in ipairs(entry[2]) do bytes = bytes + #text end
  answer[#answer + 1] = entry[1]
  answer[#answer + 1] = entry[2]
  return bytes, entry[1]
end

-- draw_from(hands, from, name, answer): from a list, or from what is pending under a name. As draw.
local function draw_from(hands, from, name, answer)
  if hands.kind == 'list' then
    local entry = redis.call('LMOVE', from, hands.inflight, 'RIGHT', 'RIGHT')
    if entry then answer[#answer + 1] = entry end
    return entry and #entry, entry
  end
  for _ = 1, 1000 do
    local id = first_of(hands, name)
    if not id then return nil end
    local entry = redis.call('XCLAIM', hands.ready, hands.group, hands.worker, 0, id)[1]
    if entry then return tell(answer, entry) end -- else it was deleted, and is pending no more
  end
end

-- draw(hands, answer): the next entry, into these hands: its bytes, and the entry; or nothing. What it is follows in
-- the answer: a payload; of a stream the id, and a table of fields.
local function draw(hands, answer)
  if hands.kind == 'list' or not hands.all_new then
    local bytes, entry = draw_from(hands, hands.ready, RETURNED, answer)
    if bytes or hands.kind == 'list' then return bytes, entry end
    hands.all_new = true
  end
  local read = redis.call('XREADGROUP', 'GROUP', hands.group, hands.worker, 'COUNT', 1, 'STREAMS', hands.ready, '>')
  if read then return tell(answer, read[1][2][1]) end
end

-- draw_suspect(hands, answer): likewise the next suspect.
local function draw_suspect(hands, answer)
  return draw_from(hands, hands.suspects, SUSPECTS, answer)
end

-- forget(hands): a worker that has nothing in hand leaves a stream's group.
local function forget(hands)
  if hands.kind == 'stream' and not first_of(hands, hands.worker) then
    redis.pcall('XGROUP', 'DELCONSUMER', hands.ready, hands.group, hands.worker) -- unless there is no group any more
  end
end
