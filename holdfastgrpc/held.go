package holdfastgrpc

import (
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
)

var errSend = errors.New("holdfastgrpc: nothing is sent before COMMIT, so the header cannot be sent: use SetHeader")

// held is the transport of a method. It keeps headers and trailers until COMMIT.
type held struct {
	method string

	mu              sync.Mutex
	header, trailer metadata.MD
}

// Method implements grpc.ServerTransportStream.
func (h *held) Method() string { return h.method }

// SetHeader keeps md.
func (h *held) SetHeader(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.header = metadata.Join(h.header, md)
	return nil
}

// SendHeader fails.
func (h *held) SendHeader(metadata.MD) error { return errSend }

// SetTrailer keeps md.
func (h *held) SetTrailer(md metadata.MD) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.trailer = metadata.Join(h.trailer, md)
	return nil
}

// send sets what was kept. It fails only if the client has gone, which then retries.
func (h *held) send(to grpc.ServerTransportStream) {
	if h == nil || to == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.header.Delete(MetadataReplayed)
	_ = to.SetHeader(h.header)
	_ = to.SetTrailer(h.trailer)
}
