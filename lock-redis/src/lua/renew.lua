-- Sets the remaining time of each owner's own lease, or tells why it cannot.
-- For each: KEYS lock meta  ARGV owner ttl meta-ttl note token
local call = redis.call
local function renew(lock, meta, owner, ttl, meta_ttl, note, token)
  local value = redis.pcall('GET', lock)
  if value == owner then
    call('PEXPIRE', lock, ttl)
    if call('PEXPIRE', meta, meta_ttl) == 0 then
      -- The counter was removed by hand: put back what it must never fall below.
      call('HSET', meta, 't', token, 'h', note)
      call('PEXPIRE', meta, meta_ttl)
    end
    return 'renewed'
  end
  if value == 'revoked:' .. owner or call('HGET', meta, 'x') == owner then
    return 'revoked'
  end
  return value and 'taken' or 'absent'
end

local answers = {}
for i = 1, #KEYS / 2 do
  local a = 5 * i - 4
  answers[i] = renew(KEYS[2 * i - 1], KEYS[2 * i], ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4])
end
return answers
