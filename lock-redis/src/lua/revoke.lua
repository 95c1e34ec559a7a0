-- Breaks the lease that was inspected, and no other.
-- KEYS lock meta queue board  ARGV value how expected-token meta-ttl
local lock, meta, queue, board = unpack(KEYS)
local value, how, expect = ARGV[1], ARGV[2], ARGV[3]
if redis.pcall('GET', lock) ~= value then
  return 'changed'
end
local owner = string.gsub(value, '^revoked:', '')
local held = call('HMGET', meta, 'h', 't')
local ours = held[1] and string.sub(held[1], 1, 16) == string.sub(owner, 1, 16)
if expect ~= '' and not (ours and held[2] == expect) then
  return 'other'
end
if ours then
  call('HSET', meta, 'x', owner)
  call('PEXPIRE', meta, ARGV[4])
end
if how == 'now' then
  call('DEL', lock)
  pass_on(lock, queue, board)
elseif owner == value then
  call('SET', lock, 'revoked:' .. owner, 'KEEPTTL')
end
if ours then
  tell(string.sub(held[1], 17, 28), 'X', owner, lock)
end
return 'revoked'
