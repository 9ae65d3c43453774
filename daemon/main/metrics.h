/* SPDX-License-Identifier: MIT */
#ifndef AB_DAEMON_MAIN_METRICS_H
#define AB_DAEMON_MAIN_METRICS_H

#include "proto/base/buf.h"
#include "proto/base/cc.h"
#include "proto/base/host.h"

struct app;

/* Everything in OpenMetrics, "# EOF" at its end. -ENOMEM: it did not fit into memory or into `out`, which holds a part of it. */
must_check int metrics_write(const struct app *a, struct buf *out);

/* "127.0.0.1:9470": a loopback address with a port. -EINVAL. [pure] */
must_check int metrics_address(const char *text, struct host_port *ret);

#endif
