// One session with Node's amqplib: argv[2] is the broker's address, argv[3] a name of our own.
// Prints "ok STEP" for each step and ends with 0 when all went as they must.
'use strict';
const assert = require('assert');
const amqp = require('amqplib');
const [url, name] = process.argv.slice(2);

const steps = {
  async 'confirmed publishes are consumed in order'(connection) {
    const channel = await connection.createConfirmChannel();
    await channel.assertQueue(name, { exclusive: true });
    for (let n = 0; n < 100; n++) {
      channel.sendToQueue(name, Buffer.from(String(n)), { headers: { n, nested: { a: [1, 'x'] } } });
    }
    await channel.waitForConfirms();
    await channel.prefetch(10);
    const seen = await new Promise((resolve) => {
      const bodies = [];
      channel.consume(name, (message) => {
        assert.strictEqual(message.properties.headers.n, bodies.length);
        assert.deepStrictEqual(message.properties.headers.nested, { a: [1, 'x'] });
        bodies.push(message.content.toString());
        channel.ack(message);
        if (bodies.length === 100) resolve(bodies);
      });
    });
    assert.deepStrictEqual(seen, Array.from({ length: 100 }, (_, n) => String(n)));
    await channel.close();
  },

  async 'unroutable is returned'(connection) {
    const channel = await connection.createConfirmChannel();
    const returned = new Promise((resolve) => channel.once('return', resolve));
    channel.publish('', name + '-nowhere', Buffer.from('m'), { mandatory: true });
    const message = await returned;
    assert.strictEqual(message.fields.replyCode, 312);
    await channel.waitForConfirms();
    await channel.close();
  },

  async 'a missing queue closes the channel only'(connection) {
    const channel = await connection.createChannel();
    channel.on('error', () => {});
    await assert.rejects(channel.checkQueue(name + '-missing'), /404/);
    await (await connection.createChannel()).close();
  },

  async 'exchange to exchange'(connection) {
    const channel = await connection.createChannel();
    await channel.assertExchange(name + '-t', 'topic', { autoDelete: true });
    await channel.assertExchange(name + '-f', 'fanout', { autoDelete: true });
    const { queue } = await channel.assertQueue('', { exclusive: true });
    await channel.bindExchange(name + '-f', name + '-t', 'a.*');
    await channel.bindQueue(queue, name + '-f', '');
    channel.publish(name + '-t', 'a.b', Buffer.from('hit'));
    channel.publish(name + '-t', 'b.a', Buffer.from('miss'));
    let message = false;
    while (!message) message = await channel.get(queue, { noAck: true });
    assert.strictEqual(message.content.toString(), 'hit');
    assert.strictEqual(await channel.get(queue, { noAck: true }), false);
    await channel.deleteQueue(queue);
    await channel.close();
  },

  async 'nack comes back redelivered'(connection) {
    const channel = await connection.createChannel();
    const { queue } = await channel.assertQueue('', { exclusive: true });
    channel.sendToQueue(queue, Buffer.from('m'));
    let message = false;
    while (!message) message = await channel.get(queue);
    assert.strictEqual(message.fields.redelivered, false);
    channel.nack(message);
    message = false;
    while (!message) message = await channel.get(queue);
    assert.strictEqual(message.fields.redelivered, true);
    channel.ack(message);
    await channel.close();
  },
};

(async () => {
  for (const [title, step] of Object.entries(steps)) {
    const connection = await amqp.connect(url);
    await step(connection);
    await connection.close();
    console.log('ok ' + title);
  }
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
