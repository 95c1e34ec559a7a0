-- The long way: recognises its own lock, claims a reservation, takes, or joins the queue.
-- KEYS lock meta queue board  ARGV owner ttl note meta-ttl process wait place floor
local lock, meta, queue, board = unpack(KEYS)
local owner, ttl, note, meta_ttl, process, wait, place, floor = unpack(ARGV)
if call('ZSCORE', queue, 'dead' .. owner) then
  return { 'dead' }
end

local function own()
  call('PEXPIRE', lock, ttl)
  leave(queue, board, owner)
  local held = call('HMGET', meta, 'h', 't')
  if held[1] and held[2] and string.sub(held[1], 1, 16) == string.sub(owner, 1, 16) then
    return { 'granted', tonumber(held[2]) }
  end
  return { 'granted', count(meta, note, meta_ttl, floor) }
end

local function take()
  call('SET', lock, owner, 'PX', ttl)
  leave(queue, board, owner)
  return { 'granted', count(meta, note, meta_ttl, floor) }
end

local value = call('GET', lock)
if value == owner then
  return own()
end
local now = clock()
call('ZREMRANGEBYSCORE', queue, TOMBS, string.format('%.0f', TOMBS + math.floor(now / 1000)))
if not value then
  local open = call('HGET', board, 'open')
  local head = first(queue)
  if not head or head == owner and now / 1000 >= tonumber(open or 0) then
    return take()
  end
end
if wait == '1' then
  call('ZADD', queue, 'NX', place == '' and string.format('%.0f', now) or place, owner)
  call('HSET', board, owner, process, process, math.floor(now / 1000))
  call('PEXPIRE', queue, LINGER)
  call('PEXPIRE', board, LINGER)
  place = call('ZSCORE', queue, owner)
end
if not value then
  hand_over(lock, queue, board, now)
  value = call('GET', lock)
  if value == owner then
    return own()
  end
  if not value and not first(queue) then
    return take()
  end
end
return {
  'busy', string.sub(value or '', 1, 64), call('PTTL', lock), place, call('HMGET', meta, 'h', 't'), call('HGET', board, 'last') or '',
}
