-- Compares and deletes, leaves the queue, hands over. With a tomb, no late request of this owner takes anything any more.
-- KEYS lock queue board  ARGV owner [tomb-ttl]
local lock, queue, board = unpack(KEYS)
-- Another type of entry is not ours: no error.
local mine = redis.pcall('GET', lock) == ARGV[1]
if mine then
  redis.call('DEL', lock)
end
if not ARGV[2] and redis.call('EXISTS', queue) == 0 then
  return mine
end
