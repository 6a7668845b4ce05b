// Package testpb is the service of the tests. To generate it: apt-get install protobuf-compiler, and
// protoc-gen-go and protoc-gen-go-grpc in PATH.
package testpb

//go:generate protoc --go_out=. --go_opt=paths=source_relative --go-grpc_out=. --go-grpc_opt=paths=source_relative refunds.proto
