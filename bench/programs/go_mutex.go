// The concurrency.Mutex of etcd's Go client, a session for each worker. The protocol is that of worker.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"golang.org/x/sys/unix"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

// The clock that all processes share.
func now() int64 {
	var at unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &at))
	return at.Nano()
}

func passes(gate chan struct{}, end int64) bool {
	select {
	case <-gate:
		return true
	case <-time.After(time.Duration(end - now())):
		return false
	}
}

func work(client *clientv3.Client, mode, name string, worker int, end int64, hold time.Duration, gates [2]chan struct{}) [][4]int64 {
	grants := [][4]int64{}
	turns := mode == "turns"
	if mode == "apart" {
		name = fmt.Sprintf("%s-%d", name, worker)
	}
	session, err := concurrency.NewSession(client)
	check(err)
	defer session.Close()
	mutex := concurrency.NewMutex(session, "bench-go/"+name)
	if turns && worker > 0 && !passes(gates[worker], end) {
		return grants
	}
	for asked := now(); asked < end; asked = now() {
		limit, cancel := context.WithTimeout(context.Background(), time.Duration(end-asked))
		err := mutex.Lock(limit)
		cancel()
		if err != nil {
			return grants
		}
		acquired := now()
		if turns {
			gates[1-worker] <- struct{}{}
		}
		if hold > 0 {
			time.Sleep(hold)
		}
		releasing := now()
		check(mutex.Unlock(context.Background()))
		grants = append(grants, [4]int64{asked, acquired, releasing, now()})
		if turns && !passes(gates[worker], end) {
			return grants
		}
	}
	return grants
}

func main() {
	input := bufio.NewScanner(os.Stdin)
	input.Scan()
	host := strings.Trim(strings.TrimPrefix(input.Text(), "etcd://"), "/")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{host}})
	check(err)
	fmt.Println("ready")
	for input.Scan() {
		words := strings.Fields(input.Text())
		workers, err := strconv.Atoi(words[2])
		check(err)
		millis, err := strconv.ParseInt(words[3], 10, 64)
		check(err)
		micros, err := strconv.ParseInt(words[4], 10, 64)
		check(err)
		end := now() + millis*1_000_000
		gates := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
		grants := make([][][4]int64, workers)
		var all sync.WaitGroup
		for worker := 0; worker < workers; worker++ {
			all.Add(1)
			go func(worker int) {
				defer all.Done()
				hold := time.Duration(micros) * time.Microsecond
				grants[worker] = work(client, words[0], words[1], worker, end, hold, gates)
			}(worker)
		}
		all.Wait()
		said, err := json.Marshal(grants)
		check(err)
		fmt.Println(string(said))
	}
}
