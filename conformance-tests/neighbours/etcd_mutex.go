// The concurrency.Mutex of etcd's Go client. Arguments: ADDRESS PREFIX SECONDS. The line protocol is that of lines.py.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func main() {
	seconds, err := strconv.Atoi(os.Args[3])
	check(err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	check(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(seconds))
	check(err)
	mutex := concurrency.NewMutex(session, os.Args[2])
	fmt.Println("ready")
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		if orders.Text() == "acquire" {
			check(mutex.Lock(context.Background()))
			fmt.Println("held")
		} else {
			check(mutex.Unlock(context.Background()))
			fmt.Println("released")
		}
	}
}
