-- claim.lua: take what is due in one queue. Inline payloads go to the ready queue here; other references are leased to
-- the caller.
--
-- Runs     allow-oom: what it moves inside Redis must flow when Redis is full
-- Uses     clock, reference, index, bodies, trouble, jobs, ready
-- KEYS[1]  queues   ZSET  queue -> next look, ms
-- KEYS[2]  delayed  ZSET  reference -> due, ms
-- KEYS[3]  bodies   HASH  uuid -> payload
-- KEYS[4]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[5]  ready    LIST  payloads, oldest at the right; or STREAM
-- KEYS[6]  dead     ZSET  reference -> time of death, ms
-- KEYS[7]  trash    ZSET  reference -> next deletion, ms
-- KEYS[8]  trouble  HASH  uuid -> record, JSON
-- KEYS[9]  moved    HASH  uuid -> due, ms
-- KEYS[10] paused   STRING
-- ARGV[1]  now, ms, or empty
-- ARGV[2]  queue
-- ARGV[3]  inline backend's name
-- ARGV[4]  batch: jobs taken at most
-- ARGV[5]  max_ready: entries of the ready queue that nobody is done with, leased jobs counted in
-- ARGV[6]  max_ready_bytes, or empty: do not weigh it this time
-- ARGV[7]  lease, ms
-- ARGV[8]  payload bytes moved at most, but always one job
-- ARGV[9]  seed for jitter, and for the fraction of a ms that tells this claim's leases from others of the same ms
-- ARGV[10] type of the ready key: list, stream
-- ARGV[11] the stream's consumer group, or empty
-- ARGV[12] number of lateness bounds b
-- ARGV[13+]   b upper bounds of the lateness histogram, ms, rising
-- ARGV[13+b+] four a backend: name (`*`: any other), free fetch slots, ms until its next probe if its breaker is open
--             (else empty), and a reference to take only if there is no other (or empty)
--
-- Returns  status (`ok`, `paused`, `full`, `unusable`), now, inline jobs moved, their lateness summed (ms), its counts
--          by bucket (b + 1), leased {reference, owner's due, …}, put back {backend, count, oldest due, due again from,
--          …}, buried {member, reason, …}, skipped for want of a slot, when the queue next needs a look (ms, or empty),
--          1 if a lease ran out, 1 if trash is due.
-- Leaves   every job in exactly one set. Leases end at now + lease + (seed mod 4096) / 4096, exact in a double;
--          that number is their token.
local queues, delayed, bodies, leases, ready = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local dead, trash, trouble, moved, paused = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local now, queue, inline = clock(ARGV[1]), ARGV[2], ARGV[3]
local batch, max_ready, max_ready_bytes = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
local lease, byte_limit, kind, bounds = tonumber(ARGV[7]), tonumber(ARGV[8]), ARGV[10], tonumber(ARGV[12])
local call, sub, find, byte = redis.call, string.sub, string.find, string.byte
local seed = tonumber(ARGV[9])
local deadline = now + lease + seed % 4096 / 4096
math.randomseed(seed)

local inline_prefix = inline .. '::' .. queue .. '::'
local prefix_length = #inline_prefix
local moved_inline, lateness_sum, lateness, bucket = 0, 0, {}, bounds + 1
local leased, buried, put_back, skipped, waiting = {}, {}, {}, {}, 0
local bound_ms, backends, unknown = {}, {}, { slots = 0 }
for i = 1, bounds do bound_ms[i] = tonumber(ARGV[12 + i]) end
bound_ms[0], bound_ms[bounds + 1] = -1, math.huge
for i = 1, bounds + 1 do lateness[i] = 0 end
for i = 13 + bounds, #ARGV, 4 do
  backends[ARGV[i]] = { slots = tonumber(ARGV[i + 1]), probe = tonumber(ARGV[i + 2]), avoid = ARGV[i + 3] }
end

local function answer(status)
  local look = reindex(queues, queue, delayed, leases, dead, trash, paused)
  local returned = {}
  for name, group in pairs(put_back) do
    returned[#returned + 1] = name
    returned[#returned + 1] = group.count
    returned[#returned + 1] = string.format('%.0f', group.oldest)
    returned[#returned + 1] = string.format('%.0f', group.again)
  end
  local next_look = look < math.huge and string.format('%.0f', math.ceil(look)) or ''
  return { status, now, moved_inline, string.format('%.0f', lateness_sum), lateness, leased, returned, buried, waiting,
    next_look, head(leases) <= now and 1 or 0, head(trash) <= now and 1 or 0 }
end

if not usable(ready, kind) then return answer('unusable') end
if call('EXISTS', paused) == 1 then return answer('paused') end
local room = max_ready - length_of(ready, kind, ARGV[11]) - call('ZCARD', leases)
if max_ready_bytes and (call('MEMORY', 'USAGE', ready) or 0) > max_ready_bytes then room = 0 end
if room <= 0 then return answer(head(delayed) <= now and 'full' or 'ok') end

local has_moved, has_trouble = call('EXISTS', moved) == 1, call('EXISTS', trouble) == 1
local largest = tonumber(call('HGET', bodies, LARGEST))
local limit, taken, read, bytes_left = math.min(batch, room), 0, 0, byte_limit

-- Lateness falls along a window that is sorted by due, so that the bucket is found by a step from the last one. Returns
-- its bounds: above the first, up to the second.
local function find_bucket(late)
  while late <= bound_ms[bucket - 1] do bucket = bucket - 1 end
  while late > bound_ms[bucket] do bucket = bucket + 1 end
  return bound_ms[bucket - 1], bound_ms[bucket]
end

local function give_up(member, reason)
  local id = identity(member)
  bury(dead, trouble, member, id, now, reason, trouble_of(trouble, id))
  call('ZREM', delayed, member)
  has_trouble = true
  buried[#buried + 1] = member
  buried[#buried + 1] = reason
end

-- How many of these inline jobs fit under the byte limit; the first job of a call always does.
local function fitting(ids)
  if largest and largest * #ids <= bytes_left then
    bytes_left = bytes_left - largest * #ids
    return #ids
  end
  for i, id in ipairs(ids) do
    local size = call('HSTRLEN', bodies, id)
    if size > bytes_left and (i > 1 or bytes_left < byte_limit) then
      bytes_left = 0
      return i - 1
    end
    bytes_left = bytes_left - size
  end
  return #ids
end

-- Members without a body, or without a time, go to the dead set; the others are returned.
local function without_bad(bad, members, ids, found, dues)
  local good_members, good_ids, good_found, good_dues = {}, {}, {}, {}
  for i, member in ipairs(members) do
    if bad[i] then
      local _, of = parse(member)
      give_up(member, of == queue and 'payload_missing' or 'not_a_reference')
    else
      good_members[#good_members + 1], good_ids[#good_ids + 1] = member, ids[i]
      good_found[#good_found + 1], good_dues[#good_dues + 1] = found[i], dues[i]
    end
  end
  return good_members, good_ids, good_found, good_dues
end

-- When the owner wants this inline job: the time in its reference; nothing if it is none. Its uuid is known to have a
-- body. Times of 13 digits that follow one another mostly share their first 7, and bytes cost less than strings made of
-- them (read with `match` and `tonumber`, these times took a quarter of the whole move).
local shared, shared_ms = '', 0
local function time_of(member)
  local a, b, c, d, e, f, colon, colon_too = byte(member, prefix_length + 8, prefix_length + 15)
  if colon == 58 and colon_too == 58 and #member == prefix_length + 51 then
    if sub(member, 1, prefix_length + 7) == shared and a > 47 and a < 58 and b > 47 and b < 58 and c > 47 and c < 58
      and d > 47 and d < 58 and e > 47 and e < 58 and f > 47 and f < 58 then
      return shared_ms + ((((a * 10 + b) * 10 + c) * 10 + d) * 10 + e) * 10 + f
    end
  end
  local _, _, ts = parse(member)
  if ts and ts >= 1e12 and ts < 1e13 then
    shared = sub(member, 1, prefix_length + 7)
    shared_ms = tonumber(sub(shared, -7)) * 1e6 - 48 * 111111
  end
  return ts
end

-- Returns how many of these inline members left the delayed set. `rank` is where they stand there, one after another,
-- or false: to remove a range is cheaper than to name each (a twentieth of the whole move).
local function move_inline(members, ids, rank)
  if #ids == 0 then return 0 end
  local count, bad = fitting(ids), nil
  if count == 0 then return 0 end
  if count < #ids then members, ids = { unpack(members, 1, count) }, { unpack(ids, 1, count) } end
  local found = call('HMGET', bodies, unpack(ids))
  local moved_to, dues = has_moved and call('HMGET', moved, unpack(ids)), {}
  local above, up_to, hits = bound_ms[bucket - 1], bound_ms[bucket], 0
  for i = 1, count do
    local due = found[i] and time_of(members[i])
    if due then
      if moved_to then due = due_of(moved_to[i], due) end
      local late = now - due
      dues[i] = due
      if late < 0 then late = 0 end
      if late <= above or late > up_to then
        lateness[bucket], hits = lateness[bucket] + hits, 0
        above, up_to = find_bucket(late)
      end
      hits, lateness_sum = hits + 1, lateness_sum + late
    else
      bad = bad or {}
      bad[i] = true
    end
  end
  lateness[bucket] = lateness[bucket] + hits
  if bad then members, ids, found, dues = without_bad(bad, members, ids, found, dues) end
  if #ids == 0 then return count end
  put(ready, kind, found, members, dues)
  call('HDEL', bodies, unpack(ids))
  if rank then
    call('ZREMRANGEBYRANK', delayed, rank, rank + #ids - 1)
  else
    call('ZREM', delayed, unpack(members))
  end
  if has_trouble then call('HDEL', trouble, unpack(ids)) end
  if has_moved then call('HDEL', moved, unpack(ids)) end
  moved_inline = moved_inline + #ids
  return count
end

local function postpone(member, backend, due, wait_ms, jitter_ms)
  local group = put_back[backend] or { count = 0, oldest = due, again = now + wait_ms }
  group.count, group.oldest = group.count + 1, math.min(group.oldest, due)
  put_back[backend] = group
  call('ZADD', delayed, now + math.max(wait_ms, 1) + math.random(0, jitter_ms), member)
end

local function take(job)
  call('ZADD', leases, deadline, job.member)
  call('ZREM', delayed, job.member)
  leased[#leased + 1] = job.member
  leased[#leased + 1] = string.format('%.0f', job.due)
  job.backend.slots, job.backend.took = job.backend.slots - 1, true
end

-- One member whose payload is elsewhere. Returns 1 if it left the delayed set, 0 if it is still due or was put back.
local function consider(member)
  local name, of, ts, uuid = parse(member)
  if of ~= queue then
    give_up(member, 'not_a_reference')
    return 1
  end
  local due, backend = has_moved and owner_due(moved, uuid, ts) or ts, backends[name] or backends['*'] or unknown
  local job = { member = member, name = name, due = due, backend = backend }
  if backend.probe then
    postpone(member, name, due, backend.probe, 1000)
    return 0
  end
  if backend.slots > 0 and backend.avoid ~= member then
    take(job)
    return 1
  end
  if backend.avoid == member then backend.avoided = job end
  skipped[#skipped + 1] = job
  return 0
end

while taken < limit and read < 4 * batch and bytes_left > 0 do
  local want = math.min(read == 0 and limit or batch, 4 * batch - read)
  local window = call('ZRANGE', delayed, '-inf', now, 'BYSCORE', 'LIMIT', #skipped, want)
  if #window == 0 then break end
  read = read + #window
  local members, ids, n, before = {}, {}, 0, #skipped
  for i = 1, #window do
    if taken + n >= limit then break end
    local member = window[i]
    if find(member, inline_prefix, 1, true) == 1 then
      n = n + 1
      members[n], ids[n] = member, sub(member, -36)
    else
      taken = taken + consider(member)
    end
  end
  taken = taken + move_inline(members, ids, #skipped == before and before)
end
if moved_inline + #buried > 0 then tidy(bodies) end

waiting = #skipped
for _, backend in pairs(backends) do
  if backend.avoided and not backend.took and backend.slots > 0 and taken < limit then
    take(backend.avoided)
    taken, waiting = taken + 1, waiting - 1
  end
end
-- A whole window of jobs that wait for a slot hides what is due behind it: they step back for a moment.
if taken == 0 and #skipped > 0 and read >= 4 * batch then
  for _, job in ipairs(skipped) do postpone(job.member, job.name, job.due, 1000, 1000) end
  waiting = 0
end
return answer('ok')
