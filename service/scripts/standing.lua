-- standing.lua: which of these jobs are accepted and not ended yet, asked of all sets in one step.
--
-- Runs     no-writes
-- Uses     jobs
-- KEYS[1]  delayed  ZSET  reference -> due, ms
-- KEYS[2]  leases   ZSET  reference -> lease deadline, ms
-- KEYS[3]  dead     ZSET  reference -> time of death, ms
-- ARGV[1+] references
--
-- Returns  for each job 1: some set holds it, 0: none does (delivered, cancelled, purged, or never accepted).
local delayed, leases, dead, standing = KEYS[1], KEYS[2], KEYS[3], {}
for _, reference in ipairs(ARGV) do
  standing[#standing + 1] = holds(reference, delayed, leases, dead) and 1 or 0
end
return standing
