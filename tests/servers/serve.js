// Serves a directory as MongoDB on a loopback port: node serve.js <package> <directory> <port>
// The package opens the directory behind a Unix socket; every connection to the port is piped to that socket.
'use strict';

const net = require('node:net');
const [, , package_, directory, port] = process.argv;
const { open } = require(package_);

async function main() {
  const db = await open(directory);
  const server = net.createServer({ noDelay: true }, (client) => {
    const engine = net.connect(db.socketPath);
    client.pipe(engine).pipe(client);
    // If one socket closes or fails, destroy the other.
    for (const [one, other] of [[client, engine], [engine, client]]) {
      one.on('error', () => {});
      one.on('close', () => other.destroy());
    }
  });
  server.listen(Number(port), '127.0.0.1');
  process.on('SIGTERM', async () => {
    server.close();
    await db.close();
    process.exit(0);
  });
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
