package faultproxy

import (
	"bytes"
	"encoding/binary"
	"sync"
	"sync/atomic"
)

// prepared knows the texts of the statements that a client of MySQL's protocol has prepared, because the
// request that runs one has its number only:
// https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_command_phase_ps.html.
type prepared struct {
	asked atomic.Pointer[[]byte] // the text that is being prepared
	texts sync.Map               // uint32 to []byte
}

// The first bytes of the commands.
const (
	comPrepare = 0x16
	comExecute = 0x17
)

// command returns the command of a MySQL request that is one packet, and what follows it.
func command(request []byte) (byte, []byte) {
	if len(request) < 6 || request[3] != 0 || int(binary.LittleEndian.Uint32(request)&0xffffff) != len(request)-4 {
		return 0, nil
	}
	return request[4], request[5:]
}

// request returns the request for a Match: with the statement's text, if it runs a prepared one.
func (p *prepared) request(request []byte) []byte {
	switch is, rest := command(request); {
	case is == comPrepare:
		text := bytes.Clone(rest)
		p.asked.Store(&text)
	case is == comExecute && len(rest) >= 4:
		if text, known := p.texts.Load(binary.LittleEndian.Uint32(rest)); known {
			return append(bytes.Clone(text.([]byte)), request...) //nolint:forcetypeassert // nothing else is stored
		}
	}
	return request
}

// reply learns a statement's number.
func (p *prepared) reply(reply []byte) {
	if text := p.asked.Swap(nil); text != nil && len(reply) >= 9 && reply[4] == 0 {
		p.texts.Store(binary.LittleEndian.Uint32(reply[5:]), *text)
	}
}
