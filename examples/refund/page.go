package main

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// The page is one document that loads nothing else. Its three parts are joined when the program
// starts.
var (
	//go:embed page/index.html
	pageHTML string
	//go:embed page/style.css
	pageCSS string
	//go:embed page/script.js
	pageJS string

	page = strings.NewReplacer("/*style*/", pageCSS, "/*script*/", pageJS).Replace(pageHTML)

	// Only this script and this style may run.
	pagePolicy = "default-src 'none'; script-src " + hashOf(pageJS) + "; style-src " + hashOf(pageCSS) +
		"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func getPage(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", pagePolicy)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(page)) // the client may have disconnected
}
