-- Gives back what was set aside for a waiter that is gone. A lease that was claimed stays.
-- KEYS lock meta queue board  ARGV owner
local lock, meta, queue, board = unpack(KEYS)
local note = call('HGET', meta, 'h')
if call('GET', lock) == ARGV[1] and not (note and string.sub(note, 1, 16) == string.sub(ARGV[1], 1, 16)) then
  call('DEL', lock)
end
leave(queue, board, ARGV[1])
pass_on(lock, queue, board)
return 1
