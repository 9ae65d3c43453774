// SPDX-License-Identifier: MIT

// revproxy puts two of Go's reverse proxies, one behind the other, before a server: the way that requests to a sandbox's agent take
// in the cloud. It prints the outer one's address and serves until its standard input ends.
//
//	revproxy http://127.0.0.1:PORT [CERT KEY]     with a certificate the outer one speaks TLS, HTTP/2 included
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

// relay serves a proxy to `target` on a port of its own and returns its address.
func relay(target string, tls []string) string {
	to, err := url.Parse(target)
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
		ErrorLog:  log.New(os.Stderr, "proxy to "+target+": ", 0),
	}
	server := &http.Server{Handler: proxy, ErrorLog: proxy.ErrorLog}
	go func() {
		if len(tls) == 2 {
			log.Fatal(server.ServeTLS(listener, tls[0], tls[1]))
		}
		log.Fatal(server.Serve(listener))
	}()
	return listener.Addr().String()
}

func main() {
	if len(os.Args) != 2 && len(os.Args) != 4 {
		log.Fatal("usage: revproxy URL [CERT KEY]")
	}
	inner := relay(os.Args[1], nil)
	fmt.Println(relay("http://"+inner, os.Args[2:]))
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		log.Fatal(err)
	}
}
