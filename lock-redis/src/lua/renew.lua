-- Sets the remaining time of the owner's own lease, or tells why it cannot.
-- KEYS lock meta  ARGV owner ttl meta-ttl note token
local call = redis.call
local value = redis.pcall('GET', KEYS[1])
if value == ARGV[1] then
  call('PEXPIRE', KEYS[1], ARGV[2])
  if call('PEXPIRE', KEYS[2], ARGV[3]) == 0 then
    -- The counter was removed by hand: put back what it must never fall below.
    call('HSET', KEYS[2], 't', ARGV[5], 'h', ARGV[4])
    call('PEXPIRE', KEYS[2], ARGV[3])
  end
  return 'renewed'
end
if value == 'revoked:' .. ARGV[1] or call('HGET', KEYS[2], 'x') == ARGV[1] then
  return 'revoked'
end
return value and 'taken' or 'absent'
