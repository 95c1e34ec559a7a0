-- Compares and deletes; with a tomb, no late request of this owner takes anything any more.
-- KEYS lock queue board [tomb]  ARGV owner [tomb-ttl]
local lock, queue, board, tomb = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if tomb then
  redis.call('SET', tomb, 1, 'PX', ARGV[2])
end
-- Another type of entry is not ours: no error.
local mine = redis.pcall('GET', lock) == ARGV[1]
if mine then
  redis.call('DEL', lock)
end
if redis.call('EXISTS', queue) == 0 then
  return mine
end
