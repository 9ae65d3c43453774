/* SPDX-License-Identifier: MIT */
/* Where the gateway listens: what [gateway] listen says, and the port of a user daemon, chosen once and kept. */
#ifndef AB_DAEMON_MAIN_GATEWAY_ADDRESS_H
#define AB_DAEMON_MAIN_GATEWAY_ADDRESS_H

#include <stdbool.h>

#include "proto/base/cc.h"
#include "proto/base/host.h"
#include "proto/base/status.h"

#define GATEWAY_ADDRESSES_MAX 8u
#define GATEWAY_PORT_FILE     "gateway-port"

/* "localhost:4711, [::1]:8080": addresses or localhost, each with a port. -EINVAL with a sentence in `why`. [pure] */
must_check int gateway_addresses_parse(const char *text, struct host_port ret[GATEWAY_ADDRESSES_MAX], size_t *ret_n,
				       struct status *why);

/* A listening descriptor of this address. -errno; -EADDRINUSE: somebody else has the port. */
must_check int gateway_bind(const char *address, uint16_t port, int *ret);

/* Is this a TCP socket that listens at this address, and at no other? */
bool gateway_is_bound(int fd, const char *address, uint16_t port);

/* The port in STATE/gateway-port; without that file one is chosen that is free now, and written. -errno; -EBADMSG: the file
 * holds no port. */
must_check int gateway_kept_port(const char *state_dir, uint16_t *ret);

#endif
