-- One look for all waiters of a process on one name: beats its heart, hands over what is free.
-- KEYS lock queue board  ARGV process oldest
local lock, queue, board = unpack(KEYS)
local now = clock()
call('HSET', board, ARGV[1], math.floor(now / 1000))
call('PEXPIRE', board, LINGER)
call('PEXPIRE', queue, LINGER)
local value = call('GET', lock)
if not value then
  hand_over(lock, queue, board, now)
  value = call('GET', lock)
end
return { string.sub(value or '', 1, 64), call('PTTL', lock), call('ZSCORE', queue, ARGV[2]) and 1 or 0 }
