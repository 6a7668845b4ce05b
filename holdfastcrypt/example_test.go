package holdfastcrypt_test

import (
	"fmt"
	"log"

	"github.com/holdfast-go/holdfast/holdfastcrypt"
	"github.com/holdfast-go/holdfast/idempotency"
)

// The newest key encrypts. The older one decrypts what was stored with it.
func ExampleCodecs() {
	secretOf := func(id string) []byte { return []byte("32 bytes of a key service: " + id)[:32] }
	codec, former, err := holdfastcrypt.Codecs(
		holdfastcrypt.Key{ID: "2026", Secret: secretOf("2026-")},
		holdfastcrypt.Key{ID: "2025", Secret: secretOf("2025-")})
	if err != nil {
		log.Fatal(err)
	}
	options := idempotency.Options{Codec: codec, FormerCodecs: former}
	fmt.Println(options.Codec.Name(), options.FormerCodecs[0].Name())
	// Output: aes256gcm:2026 aes256gcm:2025
}
