package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// verify returns the id of a request that was signed with the secret, within five minutes of now.
func verify(secret string, h http.Header, body []byte, now time.Time) (id string, err error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return "", errors.New("the secret is not whsec_ and base64")
	}
	id, stamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || now.Sub(time.Unix(seconds, 0)).Abs() > 5*time.Minute {
		return "", errors.New("the request is too old, or from the future")
	}
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s.%s.%s", id, stamp, body)
	want := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	for got := range strings.FieldsSeq(h.Get("webhook-signature")) {
		if hmac.Equal([]byte(got), want) {
			return id, nil
		}
	}
	return "", errors.New("the signature is wrong")
}
